"""Pictures show what the audits found, where they found it, and run nothing that a file says."""

import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from octopus.verify.facets import BlockTable
from octopus.verify.findings import Finding, Severity, Witness
from octopus.verify.pairs import of_dense
from octopus.verify.pictures import draw
from octopus.verify.pictures.counting import tile_areas, tile_counts
from octopus.verify.pictures.draw import scene_of
from octopus.verify.pictures.png import SCALE, PictureUnavailable
from octopus.verify.pictures.scene import LEAK, MISSING, SEEN, Dot, Raster, Text, rgb
from octopus.verify.pictures.svg import png_bytes
from octopus.verify.subject import (
    CAUSAL,
    FULL,
    DenseMask,
    Descent,
    Mount,
    Positions,
    Ranges,
    SegmentRow,
    Subject,
)

RNG = np.random.default_rng(0)
EVIL = "<script>alert(1)</script>\x1b"


def wrong_tree(name: str = "b") -> Subject:
    """A root of 3, two children of 2, a mount, one leak (row 5 sees row 3), one missing pair and one wrong position."""
    seen = np.tri(7, dtype=bool)
    seen[5:, 3:5] = False
    seen[5, 3], seen[6, 0] = True, False
    return Subject(
        name="batch0",
        length=7,
        mask=DenseMask(seen_HQK=seen[None], convention="bool, True = visible"),
        descent=Descent(
            segments=(
                SegmentRow(id="root", parent=None, start=0, length=3),
                SegmentRow(id="a", parent="root", start=3, length=2),
                SegmentRow(id=name, parent="root", start=5, length=2),
            ),
            mounts=(Mount(at=6, k0=4, k1=5, shift=0, placement="append"),),
        ),
        positions=Positions(ids_AT=np.array([[0, 1, 2, 3, 4, 3, 9]]), dtype="int64"),
    )


LEAKED = Finding(
    code="OCT101", severity=Severity.ERROR, message=f"row 5 sees row 3 {EVIL}", witness=Witness(query=5, key=3)
)


def test_tiles_are_counted_as_on_the_matrix() -> None:
    """Catches a run's ends given to the wrong tile, and last tiles taken for whole ones."""
    for _ in range(60):
        length, tile_q, tile_k = RNG.integers(1, 12, 3).tolist()
        seen = RNG.random((length, length)) < 0.4
        corners = [range(0, length, tile) for tile in (tile_q, tile_k)]
        wanted = np.array([[seen[r : r + tile_q, c : c + tile_k].sum() for c in corners[1]] for r in corners[0]])
        np.testing.assert_array_equal(tile_counts(of_dense(seen), tile_q, tile_k), wanted)
        ones = np.ones((length, length), dtype=bool)
        np.testing.assert_array_equal(tile_counts(of_dense(ones), tile_q, tile_k), tile_areas(length, tile_q, tile_k))


def test_cells_are_coloured_by_what_is_wrong_with_them() -> None:
    """Catches queries and keys in each other's place, and a leak that is drawn as visible."""
    cells = next(shape for shape in scene_of(wrong_tree(), []).shapes if isinstance(shape, Raster)).rgb
    colours = {tuple(cells[at]) for at in ((5, 3),)}, {tuple(cells[at]) for at in ((6, 0), (6, 4))}
    assert colours == ({rgb(LEAK)}, {rgb(MISSING)})
    assert tuple(cells[4, 3]) == rgb(SEEN)
    assert (cells == rgb(LEAK)).all(axis=-1).sum() == 1


def test_blocks_show_their_waste_and_what_a_table_skips() -> None:
    """Catches a table that is not drawn, and waste counted over all blocks."""
    seen = np.tri(4, dtype=bool)
    table = BlockTable(
        block_q=2, block_k=2, partial_count_R=np.array([1, 1]), partial_RC=np.array([[0, 0], [1, 0]])
    )
    mask = DenseMask(seen_HQK=seen[None], convention="")
    scene = scene_of(Subject(name="x", length=4, mask=mask, blocks=table), [])
    assert "2 of 4 visited, 25% of their pairs wasted" in texts(scene.shapes)
    assert "blocks of 2 x 2 pairs, visited by the table" in texts(scene.shapes)
    blocks = [shape for shape in scene.shapes if isinstance(shape, Raster)][1].rgb
    assert tuple(blocks[1, 0]) == rgb(LEAK)


def texts(shapes: object) -> str:
    return "\n".join(shape.text for shape in shapes if isinstance(shape, Text))  # type: ignore[attr-defined]


def test_wrong_positions_are_marked_and_mounts_carry_their_shift() -> None:
    """Catches positions compared with row numbers, and a panel that is left out."""
    scene = scene_of(wrong_tree(), [])
    assert "stored positions, 1 of them wrong" in texts(scene.shapes)
    assert "Segments: 3, 1 mount" in texts(scene.shapes) and "+0" in texts(scene.shapes)
    assert [shape.title for shape in scene.shapes if isinstance(shape, Dot) and shape.fill == LEAK] == [
        "row 6 (b, token 1): position 9, expected 5"
    ]


def test_the_page_stands_alone_and_runs_nothing(tmp_path: Path) -> None:
    """Catches a name from a file that becomes markup, and anything loaded from elsewhere."""
    draw(wrong_tree(EVIL), [LEAKED], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    assert "<script" not in page and "default-src 'none'" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    picture = page[page.index("<svg") : page.index("</svg>") + 6]
    titles = [element.text for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}title")]
    assert any(title and title.startswith("OCT101") for title in titles)


def test_the_png_has_the_leak_where_the_mask_has_it(tmp_path: Path) -> None:
    """Catches a picture that is drawn empty or scaled wrongly."""
    subject = wrong_tree()
    draw(subject, [LEAKED], tmp_path / "a.png")
    raster = next(shape for shape in scene_of(subject, []).shapes if isinstance(shape, Raster))
    cell = raster.width / 7
    with Image.open(tmp_path / "a.png") as image:
        at = (SCALE * (raster.x + 3.5 * cell), SCALE * (raster.y + 5.5 * cell))
        assert image.getpixel((round(at[0]), round(at[1]))) == rgb(LEAK)


def test_a_raster_in_the_page_is_a_png_that_others_read(tmp_path: Path) -> None:
    """Catches a wrong filter byte or checksum."""
    pixels = RNG.integers(0, 256, (5, 3, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(png_bytes(pixels))
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)


def test_a_long_row_is_drawn_without_a_matrix(tmp_path: Path) -> None:
    """Catches T x T: 131,072 tokens of 64 documents would be 17 GB."""
    length, each = 131_072, 2_048
    starts = np.arange(0, length, each)
    slices = np.stack([starts, starts + each, starts, starts + each, np.full_like(starts, CAUSAL)], axis=1)
    slices = np.concatenate([slices, [[each, 2 * each, 0, each, FULL]]])
    documents = np.repeat(np.arange(len(starts)), each)
    subject = Subject(
        name="long", length=length, mask=Ranges(slices_S5=slices), descent=Descent(documents_T=documents)
    )
    began = time.process_time()
    draw(subject, [], tmp_path / "a.html")
    assert time.process_time() - began < 20
    cells = next(shape for shape in scene_of(subject, []).shapes if isinstance(shape, Raster)).rgb
    assert len(cells) <= 420 and (cells == rgb(LEAK)).all(axis=-1).any()
    assert (tmp_path / "a.html").stat().st_size < 2**20


def test_very_many_segments_make_no_large_picture(tmp_path: Path) -> None:
    """Catches a shape for each segment: 120 MB for 131,072 of them."""
    length = 131_072
    parents = np.append(-1, RNG.integers(0, np.arange(1, length)))
    slices = np.array([(0, length, 0, length, CAUSAL)])
    subject = Subject(
        name="many", length=length, mask=Ranges(slices_S5=slices), descent=Descent(parents_T=parents)
    )
    draw(subject, [], tmp_path / "a.html")
    assert (tmp_path / "a.html").stat().st_size < 2**20


def test_labels_of_shifts_do_not_cover_each_other() -> None:
    """Catches twelve labels in one place."""
    mounts = tuple(Mount(at=6, k0=k0, k1=k0 + 1, shift=100 + k0, placement=None) for k0 in (3, 3, 3, 4))
    descent = Descent(parents_T=np.array([-1, 0, 1, 2, 3, 2, 5]), mounts=mounts)
    labels = [
        shape
        for shape in scene_of(Subject(name="x", length=7, descent=descent), []).shapes
        if isinstance(shape, Text) and shape.text.startswith("+10")
    ]
    assert {label.text for label in labels} == {"+103", "+104"} and len(labels) == 2


def test_one_wrong_pair_among_millions_is_marked() -> None:
    """Catches a mark that is as small as the pair."""
    slices = np.array([(0, 4000, 0, 4000, CAUSAL), (500, 501, 3000, 3001, FULL)])
    finding = Finding(code="OCT101", severity=Severity.ERROR, message="m", witness=Witness(query=500, key=3000))
    shapes = scene_of(Subject(name="x", length=4000, mask=Ranges(slices_S5=slices)), [finding]).shapes
    dots = [shape for shape in shapes if isinstance(shape, Dot) and shape.title is None and shape.fill == LEAK]
    rings = [shape for shape in shapes if isinstance(shape, Dot) and shape.stroke and shape.fill is None]
    assert [(dot.x, dot.y) for dot in dots] == [(ring.x, ring.y) for ring in rings] and len(dots) == 1


def test_what_cannot_be_drawn_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a missing extra that ends in a traceback."""
    with pytest.raises(PictureUnavailable, match=r"\.html or \.png"):
        draw(wrong_tree(), [], tmp_path / "a.gif")
    with pytest.raises(PictureUnavailable, match="cannot write"):
        draw(wrong_tree(), [], tmp_path / "missing" / "a.html")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PictureUnavailable, match="pip install"):
        draw(wrong_tree(), [], tmp_path / "a.png")
    draw(Subject(name="empty", length=0), [], tmp_path / "a.html")
