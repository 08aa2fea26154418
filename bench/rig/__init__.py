"""What the benchmarks share: servers, load, memory, disks, reports. Each of the scripts beside this folder is one measurement."""
