# find_package(GraphPipe): defines graphpipe::runtime, the library that generated programs link. Needs GRAPHPIPE_LIBTORCH,
# a LibTorch folder (include/ and lib/, 2.11 to 2.15); without it, the LibTorch that the runtime was built with.
# Sets GRAPHPIPE_COMPILED_HEADERS to a header that stands for what stages include of LibTorch and came compiled with the
# runtime; empty where the project's compiler, flags or LibTorch are not those that it was compiled with.

if(NOT TARGET graphpipe::runtime)
  include("${CMAKE_CURRENT_LIST_DIR}/built_with.cmake")  # sets GRAPHPIPE_CUDA and graphpipe_built_with
  if(NOT GRAPHPIPE_LIBTORCH)
    file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/libtorch.path" GRAPHPIPE_LIBTORCH LIMIT_COUNT 1)
  endif()
  include("${CMAKE_CURRENT_LIST_DIR}/libtorch.cmake")
  get_filename_component(_graphpipe_prefix "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  add_library(graphpipe::runtime INTERFACE IMPORTED)
  set_target_properties(graphpipe::runtime PROPERTIES INTERFACE_COMPILE_FEATURES cxx_std_20)
  target_include_directories(graphpipe::runtime INTERFACE "${_graphpipe_prefix}/include")
  target_link_libraries(graphpipe::runtime INTERFACE "${_graphpipe_prefix}/lib/libgraphpipe_runtime.a"
    "${_graphpipe_prefix}/lib/libgraphpipe_wire.a" "${_graphpipe_prefix}/lib/libgraphpipe_support.a" graphpipe_torch)

  set(GRAPHPIPE_COMPILED_HEADERS "")
  file(SIZE "${GRAPHPIPE_LIBTORCH}/lib/libtorch_cpu.so" _graphpipe_libtorch_size)
  set(_graphpipe_builds_with
    "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${GRAPHPIPE_LIBTORCH} ${_graphpipe_libtorch_size}")
  string(STRIP "${CMAKE_CXX_FLAGS}" _graphpipe_flags)
  set(_graphpipe_headers "${CMAKE_CURRENT_LIST_DIR}/compiled_headers/libtorch.h")
  if(CMAKE_BUILD_TYPE STREQUAL "None" AND _graphpipe_flags STREQUAL "-Og" AND EXISTS "${_graphpipe_headers}.gch"
      AND _graphpipe_builds_with STREQUAL graphpipe_built_with)
    set(GRAPHPIPE_COMPILED_HEADERS "${_graphpipe_headers}")
  endif()
  unset(_graphpipe_prefix)
endif()
