# The half of the build that needs LibTorch; runtime/libtorch.cmake says how it is linked.

option(GRAPHPIPE_CUDA "Build the CUDA device and the NCCL transport" OFF)
set(GRAPHPIPE_LIBTORCH "$ENV{GRAPHPIPE_LIBTORCH}" CACHE PATH "LibTorch folder (include/ and lib/), 2.11 to 2.15")
if(NOT GRAPHPIPE_LIBTORCH)
  set(GRAPHPIPE_LIBTORCH "${GRAPHPIPE_DEPS_DIR}/libtorch/torch" CACHE PATH "" FORCE)
endif()
if(NOT EXISTS "${GRAPHPIPE_LIBTORCH}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch at '${GRAPHPIPE_LIBTORCH}': run scripts/install_deps, or set GRAPHPIPE_LIBTORCH, "
    "or configure with -DGRAPHPIPE_RUNTIME=OFF to build the compiler alone")
endif()
include("${PROJECT_SOURCE_DIR}/runtime/libtorch.cmake")

# graphpipe_runtime_library(NAME DEPS folders...): the folder and its sub-folders, linked against LibTorch.
function(graphpipe_runtime_library name)
  cmake_parse_arguments(arg "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  # One of each pair is built: CUDA and NCCL, or the file that says they are not there.
  if(GRAPHPIPE_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_(cuda|nccl)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/(cuda(_recorder)?|nccl)\\.cpp$")
  endif()
  list(TRANSFORM arg_DEPS PREPEND graphpipe_)
  if(NOT sources)
    add_library(graphpipe_${name} INTERFACE)
    return()
  endif()
  add_library(graphpipe_${name} STATIC ${sources})
  _graphpipe_common(graphpipe_${name})
  target_link_libraries(graphpipe_${name} PUBLIC ${arg_DEPS} graphpipe_torch)
endfunction()
