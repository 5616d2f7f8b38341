"""How somebody asks: the command and its options, and answers as words, as JSON, for the page and as files to launch with."""
