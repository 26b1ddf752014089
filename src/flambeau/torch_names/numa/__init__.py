"""Where processes run on machines whose memory is nearer to some processors than to others: the names of the options."""
