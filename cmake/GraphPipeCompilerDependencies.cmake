# What only the compiler half uses: Debian's packages, and the ONNX that scripts/install_deps built.

set(Protobuf_USE_STATIC_LIBS ${GRAPHPIPE_STATIC})
set(OPENSSL_USE_STATIC_LIBS ${GRAPHPIPE_STATIC})
find_package(Boost 1.74 REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(Protobuf REQUIRED)
# Debian has no static fmt; as headers it needs none.
add_library(graphpipe_fmt INTERFACE)
target_link_libraries(graphpipe_fmt INTERFACE $<IF:$<BOOL:${GRAPHPIPE_STATIC}>,fmt::fmt-header-only,fmt::fmt>)

# ONNX: the static library that scripts/install_deps built, with a protobuf package of its own.
find_package(ONNX CONFIG REQUIRED PATHS "${GRAPHPIPE_DEPS_DIR}/onnx" NO_DEFAULT_PATH)
add_library(graphpipe_onnx INTERFACE)
target_link_libraries(graphpipe_onnx INTERFACE ONNX::onnx)
add_library(graphpipe_protobuf INTERFACE)
target_link_libraries(graphpipe_protobuf INTERFACE protobuf::libprotobuf)
