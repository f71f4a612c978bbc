"""A radix tree of token runs, each with the segments that provide it."""

from __future__ import annotations

from collections.abc import Iterator

from octopus.core.segment import Segment

TOKEN_BYTES = 4


class Node:
    """A run of tokens below the run of `parent`. Every provider holds all of it, computed.

    Attributes:
        parent: The node above; None for the root, whose label is empty.
        label: The tokens, `TOKEN_BYTES` each.
        start: Path length before the first.
        children: By the bytes of their first token.
        providers: The segments, in the order in which they came.
    """

    __slots__ = ("children", "label", "parent", "providers", "start")

    def __init__(self, parent: Node | None, label: bytes, start: int, providers: dict[Segment, None]) -> None:
        self.parent = parent
        self.label = label
        self.start = start
        self.children: dict[bytes, Node] = {}
        self.providers = providers

    @property
    def end(self) -> int:
        """Path length after the last token."""
        return self.start + len(self.label) // TOKEN_BYTES

    def split(self, path_length: int) -> Node:
        """Cuts the run after `path_length` tokens of the path; returns the upper part. Whoever ends here still does."""
        assert self.parent is not None
        cut = (path_length - self.start) * TOKEN_BYTES
        upper = Node(self.parent, self.label[:cut], self.start, dict(self.providers))
        self.parent.children[self.label[:TOKEN_BYTES]] = upper
        self.parent, self.label, self.start = upper, self.label[cut:], path_length
        upper.children[self.label[:TOKEN_BYTES]] = self
        return upper

    def ending_at(self, path_length: int) -> Node:
        """This node or the one above it that ends after `path_length` tokens; one is split if none does."""
        node = self
        while node.start >= path_length and node.parent is not None:
            node = node.parent
        return node if node.end == path_length else node.split(path_length)

    def extend(self, text: bytes, segment: Segment) -> Node:
        """Files that `segment` provides `text` right after this node; returns the node at which it ends."""
        node, done = self, 0
        while done < len(text):
            child = node.children.get(text[done : done + TOKEN_BYTES])
            if child is None:
                if not node.children and node.parent is not None and node.providers.keys() == {segment}:
                    node.label += text[done:]
                    return node
                child = Node(node, text[done:], node.end, {segment: None})
                node.children[text[done : done + TOKEN_BYTES]] = child
                return child
            shared = common_bytes(child.label, text, done)
            if shared < len(child.label):
                child = child.split(child.start + shared // TOKEN_BYTES)
            child.providers[segment] = None
            node, done = child, done + shared
        return node

    def find(self, text: bytes) -> tuple[Node, int]:
        """The deepest node that `text` reaches, and how many tokens of the path are equal."""
        node, done, size = self, 0, len(text)
        while done < size:
            child = node.children.get(text[done : done + TOKEN_BYTES])
            if child is None or not child.providers:
                break
            label = child.label
            if not text.startswith(label, done):
                return child, child.start + common_bytes(label, text, done) // TOKEN_BYTES
            node, done = child, done + len(label)
        return node, node.end

    def withdraw(self, segment: Segment) -> None:
        """The segment, which ends at this node, provides nothing any more. Runs that nobody needs go."""
        node: Node | None = self
        while node is not None and segment in node.providers:
            above = node.parent
            del node.providers[segment]
            node.tidy()
            node = above

    def tidy(self) -> None:
        """Removes the run if it is an unprovided leaf; joins it to its only child if the same segments provide both."""
        if self.parent is None:
            return
        key = self.label[:TOKEN_BYTES]
        if not self.children:
            if not self.providers:
                del self.parent.children[key]
                self.parent.join()
        else:
            self.join()

    def join(self) -> None:
        """Makes this run part of its only child if the same segments provide both, so that nobody ends in between."""
        if self.parent is None or len(self.children) != 1:
            return
        (child,) = self.children.values()
        if child.providers.keys() == self.providers.keys() and self.providers:
            self.parent.children[self.label[:TOKEN_BYTES]] = child
            child.parent, child.label, child.start = self.parent, self.label + child.label, self.start

    def __iter__(self) -> Iterator[Node]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()


def common_bytes(label: bytes, text: bytes, start: int) -> int:
    """How many leading bytes of `label` stand in `text` from `start` on, in whole tokens."""
    if text.startswith(label, start):
        return len(label)
    low, high = 0, min(len(label), len(text) - start) // TOKEN_BYTES
    while low < high:  # Tokens [0, low) are equal; those beyond high are not looked at any more.
        middle = (low + high + 1) // 2
        if text.startswith(label[low * TOKEN_BYTES : middle * TOKEN_BYTES], start + low * TOKEN_BYTES):
            low = middle
        else:
            high = middle - 1
    return low * TOKEN_BYTES
