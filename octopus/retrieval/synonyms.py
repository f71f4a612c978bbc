"""A small table of words that mean nearly the same in the documentation of a library, written for this project."""

from __future__ import annotations

# One word and its replacement each; only the first is ever replaced.
_PAIRS = """
    additional further, all every, allow permit, allows permits, argument parameter, arguments parameters,
    associated linked, begin start, beginning start, call invoke, called invoked, calls invokes, change alter,
    changed altered, changes alters, check test, checks tests, close shut, closed shut, compare contrast,
    compute calculate, computed calculated, computes calculates, connect link, contain hold, containing holding,
    contains holds, convert turn, converted turned, converts turns, copy duplicate, corresponding matching,
    create make, created made, creates makes, creating making, current present, default standard,
    delete erase, deleted erased, deletes erases, describe explain, determine establish, directories folders,
    directory folder, discard drop, display show, each every, element item, elements items, equal identical,
    error fault, errors faults, execute run, executed run, executes runs, existing present, fail break,
    find locate, finds locates, first initial, found located, function routine, functions routines,
    generate produce, generated produced, generates produces, get obtain, gets obtains, given supplied,
    greater larger, handle treat, handles treats, ignore disregard, ignored disregarded, include contain,
    includes contains, indicate show, indicates shows, initialize prepare, insert put, item element,
    items elements, keep retain, largest biggest, last final, leading initial, list series, locate find,
    make create, makes creates, match fit, matches fits, matching fitting, maximum highest, message notice,
    messages notices, method routine, methods routines, minimum lowest, missing absent, modify alter,
    multiple several, name label, names labels, new fresh, number count, object thing, objects things,
    obtain get, occurred happened, occurs happens, optional extra, parse interpret, pass hand, passed handed,
    perform do, performs does, permit allow, previous earlier, print show, provide offer, provided offered,
    provides offers, raise throw, raised thrown, raises throws, receive get, received got, remaining other,
    remove strip, removed stripped, removes strips, replace swap, replaced swapped, represent denote,
    representing denoting, represents denotes, require need, required needed, requires needs, return give,
    returned given, returning giving, returns gives, routine function, same identical, search look,
    send transmit, sends transmits, sequence series, several multiple, show display, smallest least,
    specified stated, specify state, split divide, start begin, starts begins, stop halt, stops halts,
    store keep, stored kept, string text, strings texts, support handle, supported handled, test check,
    unchanged unaltered, update refresh, use employ, used employed, uses employs, using employing, value figure,
    values figures, wait pause, whether if, write put, writes puts
"""

SYNONYMS: dict[str, str] = {pair.split()[0]: pair.split()[1] for pair in _PAIRS.split(",")}
