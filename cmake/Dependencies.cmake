# The libraries that dps links, one imported target each. tools/packages names the Debian packages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(NGHTTP2 REQUIRED IMPORTED_TARGET libnghttp2)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core)
pkg_check_modules(SQLITE3 REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZIP REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(INIH REQUIRED IMPORTED_TARGET inih)
pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_C protoc-c REQUIRED)
