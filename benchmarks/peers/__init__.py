"""Other libraries, each in an environment and a process of its own: installed, started, asked to train."""
