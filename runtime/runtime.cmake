# Defines graphpipe::runtime, the library that generated programs link. Set GRAPHPIPE_LIBTORCH to a LibTorch folder
# (include/ and lib/, 2.11 or later), then include(<prefix>/share/graphpipe/runtime.cmake).

if(NOT TARGET graphpipe::runtime)
  include("${CMAKE_CURRENT_LIST_DIR}/built_with.cmake")  # sets GRAPHPIPE_CUDA
  include("${CMAKE_CURRENT_LIST_DIR}/libtorch.cmake")
  get_filename_component(_graphpipe_prefix "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
  add_library(graphpipe::runtime INTERFACE IMPORTED)
  set_target_properties(graphpipe::runtime PROPERTIES INTERFACE_COMPILE_FEATURES cxx_std_20)
  target_include_directories(graphpipe::runtime INTERFACE "${_graphpipe_prefix}/include")
  target_link_libraries(graphpipe::runtime INTERFACE "${_graphpipe_prefix}/lib/libgraphpipe_runtime.a"
    "${_graphpipe_prefix}/lib/libgraphpipe_wire.a" "${_graphpipe_prefix}/lib/libgraphpipe_support.a" graphpipe_torch)
  unset(_graphpipe_prefix)
endif()
