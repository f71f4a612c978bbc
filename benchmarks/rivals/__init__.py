"""Page stores of other libraries, each doing our benchmark's operations through its own interface."""
