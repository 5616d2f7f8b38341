python3 -m pip install '.[examples]'  # what every notebook needs; a torch that is there stays
PYTHON=python3 make record
