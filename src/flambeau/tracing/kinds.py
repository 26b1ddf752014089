"""The kinds of notes a recorder makes."""

OPERATION, NODE, LEAF, RANGE, MODULE, BACKWARD, FUNCTION = range(7)
