"""Every error that retrieval raises on purpose.

They stand here and not in `octopus.core.errors`, because this package imports nothing else of ours.
"""

from __future__ import annotations


class RetrievalError(Exception):
    """Base of all errors of this package that a caller can cause and mend."""


class CorpusDamaged(RetrievalError):
    """A file of documents is not what its hash says, has a line that is no document, or an id twice."""


class UnknownDocument(RetrievalError):
    """No document has that id."""


class BadSearch(RetrievalError):
    """A search asks for less than one result."""


class IndexMismatch(RetrievalError):
    """A folder holds no saved retriever, or one of another kind."""


class RetrieverUnavailable(RetrievalError):
    """Something that the retriever runs on is missing: a package, a Java that is new enough, or a usable JVM."""


class BadQuestionRequest(RetrievalError):
    """Questions of that split or number of parts cannot be made from these documents."""
