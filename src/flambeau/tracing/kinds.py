"""The kinds of notes a recorder makes."""

OPERATION, NODE, LEAF, RANGE, MODULE, BACKWARD = range(6)
