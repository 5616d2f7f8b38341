make serve  # installs what the site needs, builds it, serves it with live reload
make test   # installs what the examples need, and runs everything
