pip install "dryrun[trace] @ git+https://github.com/performance-and-scalability/performance-and-scalability@v0.1.0#subdirectory=dryrun"
