make test CHANGED=origin/main   # or another commit that your work started from
