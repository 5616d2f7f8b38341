make exact NOTEBOOKS=memory_anatomy   # what is derived, traced, predicted, cited
make record NOTEBOOKS=memory_anatomy  # and what is measured
