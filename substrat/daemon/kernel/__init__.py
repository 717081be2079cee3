"""One file for each kernel interface: processes, cgroups, inotify, sockets; no policy."""
