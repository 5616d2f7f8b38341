PYTHON=python3 make record
