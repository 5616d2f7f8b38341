make test                       # ten minutes, and what your change touches
make test CHANGED=origin/main   # only what your change touches; or another commit that your work started from
