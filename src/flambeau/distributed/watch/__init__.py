"""What makes collectives tell their users what went wrong: cards, boards, and the watcher."""
