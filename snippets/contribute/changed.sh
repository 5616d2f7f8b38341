make test CHANGED=main   # or another commit that your work started from
