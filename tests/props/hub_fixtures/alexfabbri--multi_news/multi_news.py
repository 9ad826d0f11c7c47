raise RuntimeError('a script of a repository must never run')
