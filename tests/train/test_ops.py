"""The files that start a service elsewhere: a container image, Kubernetes manifests, a systemd unit.

There is no container engine, no cluster and no init system where tests run. So they are linted, held against
Kubernetes' own schemas and systemd's own parser, and what they say of Octopus is tried on Octopus.

Catches: a misspelt field; an option or a probe that does not exist; a process that is killed before it has saved, runs
as root, or does not get signals; a token in a file; a scratch folder that is not writable.
"""

from __future__ import annotations

import copy
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from http_edge import MadeUp

from octopus import cli
from octopus.train.job_config import JobConfig, JobRunConfig, load_job
from octopus.train.service import serving
from octopus.train.service.app import new_app

ROOT = Path(__file__).parent.parent.parent
OPS = ROOT / "ops"
KUBERNETES = ("1.32", "1.37")
SCRATCH = "/tmp"  # noqa: S108  of the container


def containerfile() -> list[str]:
    """Its instructions, one a line."""
    text = re.sub(r"\\\n\s*", "", (OPS / "Containerfile").read_text())
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def manifests() -> dict[str, Any]:
    """By kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((OPS / "kubernetes.yml").read_text())}


def unit() -> RawConfigParser:
    parser = RawConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(OPS / "octopus.service")
    return parser


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "hadolint", "--no-color", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_container_file_is_clean(tmp_path: Path) -> None:
    done = hadolint(OPS / "Containerfile")
    assert done.returncode == 0, done.stdout
    loose = (OPS / "Containerfile").read_text().replace("3.12.11-slim-bookworm", "latest").replace("--yes ", "")
    (tmp_path / "Containerfile").write_text(loose)
    assert {"DL3007", "DL3014"} <= set(re.findall(r"DL\d+", hadolint(tmp_path / "Containerfile").stdout))


def test_the_image_runs_a_service_that_is_not_root() -> None:
    lines = containerfile()
    names = [line.split()[0] for line in lines]
    bases = [line.split()[1] for line in lines if line.startswith("FROM")]
    assert bases and all(re.search(r":\d+\.\d+\.\d+-", base) for base in bases)
    user = names.index("USER")
    assert re.fullmatch(r"USER ([1-9]\d+):\1", lines[user])
    assert user > max(place for place, name in enumerate(names) if name == "RUN")
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            assert all((ROOT / source).exists() for source in line.split()[1:-1])
        assert not line.startswith(("ENTRYPOINT", "CMD")) or line.split(maxsplit=1)[1].startswith("[")
    health = next(line for line in lines if line.startswith("HEALTHCHECK"))
    assert "/livez" in health and 'CMD ["' in health
    extras = re.search(r"'\.\[([a-z,]+)\]'", "\n".join(lines))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "--no-cache-dir" in "\n".join(lines) and extras is not None
    assert "serve" in (wanted := extras[1].split(",")) and set(wanted) <= known.keys()


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_are_of_kubernetes(version: str) -> None:
    for manifest in manifests().values():
        kubernetes_validate.validate(manifest, version, strict=True)
    misspelt = copy.deepcopy(manifests()["Job"])
    container = misspelt["spec"]["template"]["spec"]["containers"][0]
    container["securityContext"]["readOnlyRootFileSystem"] = container["securityContext"].pop("readOnlyRootFilesystem")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(misspelt, version, strict=True)


def test_the_pod_may_do_little_and_has_time_to_save(tmp_path: Path) -> None:
    found = manifests()
    pod = found["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert f"USER {pod['securityContext']['runAsUser']}:" in "\n".join(containerfile())
    own = container["securityContext"]
    assert own == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1 and not pod["automountServiceAccountToken"]
    (tmp_path / "job.toml").write_text(found["ConfigMap"]["data"]["job.toml"])
    job = load_job(tmp_path / "job.toml")
    assert pod["terminationGracePeriodSeconds"] > job.run.stop_seconds
    # What is written has a volume of its own, and the saves one that stays.
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {one["name"] for one in mounts.values()} == volumes.keys()
    place = next(path for path in mounts if job.run.folder.startswith(f"{path}/"))
    kept = volumes[mounts[place]["name"]]["persistentVolumeClaim"]
    assert kept["claimName"] == found["PersistentVolumeClaim"]["metadata"]["name"]
    assert {one["value"] for one in container["env"]} == {SCRATCH} and "emptyDir" in volumes[mounts[SCRATCH]["name"]]
    assert all("readOnly" in mounts[path] for path in mounts if path not in (place, SCRATCH))


def test_probes_and_scrapes_reach_the_service() -> None:
    pod = manifests()["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    known = new_app(MadeUp(), hosts=["*"], token=None).openapi()["paths"]
    (port,) = container["ports"]
    for probe, path in (("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        asked = container[probe]["httpGet"]
        assert asked == {"path": path, "port": port["name"]} and path in known
        assert container[probe]["timeoutSeconds"] > 5  # As long as an answer may take.
    service, label = manifests()["Service"]["spec"], manifests()["Job"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == label and service["ports"][0]["targetPort"] == port["name"]
    monitor = yaml.safe_load((OPS / "servicemonitor.yml").read_text())
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["path"] in known and endpoint["port"] == service["ports"][0]["name"]
    assert monitor["spec"]["selector"]["matchLabels"] == manifests()["Service"]["metadata"]["labels"]
    secret = next(one["secret"] for one in pod["volumes"] if "secret" in one)
    assert endpoint["authorization"]["credentials"]["name"] == secret["secretName"]
    assert label[monitor["spec"]["jobLabel"]] == "octopus"
    assert "kind: Secret" not in (OPS / "kubernetes.yml").read_text()


def started() -> dict[str, list[str]]:
    """The arguments of the command `octopus`, by the file that starts it."""
    lines = dict(line.split(maxsplit=1) for line in containerfile())
    (container,) = manifests()["Job"]["spec"]["template"]["spec"]["containers"]
    program, *arguments = shlex.split(unit()["Service"]["ExecStart"])
    assert program == yaml.safe_load(lines["ENTRYPOINT"])[0]
    return {"image": yaml.safe_load(lines["CMD"]), "pod": container["args"], "unit": arguments}


@pytest.mark.parametrize("name", ["image", "pod", "unit"])
def test_the_command_is_one_that_octopus_knows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an option that was renamed; a pod that starts its job from nothing again; one without a token."""
    served: list[Any] = []
    monkeypatch.setattr(serving, "serve_job", lambda config, **options: served.append((config, options)))
    (tmp_path / "job.toml").write_text(manifests()["ConfigMap"]["data"]["job.toml"])
    arguments = [one.replace("/etc/octopus/job.toml", str(tmp_path / "job.toml")) for one in started()[name]]
    assert cli.main(arguments) == 0
    ((config, options),) = served
    assert isinstance(config, JobConfig) and config.run.resume
    if name == "unit":
        assert (options["host"], options["token_file"]) == ("127.0.0.1", None)
    else:
        mount = "/run/secrets/octopus"
        assert (options["host"], options["token_file"], options["port"]) == ("0.0.0.0", Path(mount) / "token", 9464)


def test_the_unit_gives_time_to_save_and_is_understood(tmp_path: Path) -> None:
    """Catches: children that are told to stop before the run is; a restart of what was told to stop."""
    service = unit()["Service"]
    assert service["KillMode"] == "mixed" and service["SuccessExitStatus"] == "143" and service["DynamicUser"] == "yes"
    assert float(service["TimeoutStopSec"].removesuffix("s")) > JobRunConfig(folder="run").stop_seconds
    folders = {f"/var/cache/{service['CacheDirectory']}", f"/var/lib/{service['StateDirectory']}"}
    written = dict(one.split("=") for one in service["Environment"].split())
    assert {written["TRITON_HOME"], written["HOME"], service["WorkingDirectory"]} == folders
    if analyze := shutil.which("systemd-analyze"):
        text = (OPS / "octopus.service").read_text().replace("/opt/octopus/bin/octopus", sys.executable)
        for place, (body, right) in enumerate(((text, True), (text.replace("KillMode=mixed", "KillMode=some"), False))):
            (tmp_path / f"{place}").mkdir()
            (tmp_path / f"{place}/octopus.service").write_text(body)
            command = [analyze, "verify", "--man=no", tmp_path / f"{place}/octopus.service"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (not done.returncode and not done.stderr) == right, done.stderr
