make record NOTEBOOKS=memory_anatomy
