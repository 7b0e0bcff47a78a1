# graphpipe::runtime of a folder that `generate --bundle` has written, from the sources beside this file. They are compiled
# with the flags in `bundle_flags`.

include("${CMAKE_CURRENT_LIST_DIR}/libtorch.cmake")  # graphpipe_torch, and GRAPHPIPE_CUDA where CUDA is found
include("${CMAKE_CURRENT_LIST_DIR}/sources.cmake")
get_filename_component(bundle "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
add_compile_options("SHELL:-iquote \"${bundle}\"")
foreach(folder support wire runtime)
  graphpipe_find_sources(sources "${bundle}/${folder}")
  add_library(graphpipe_${folder} STATIC ${sources})
  set_target_properties(graphpipe_${folder} PROPERTIES UNITY_BUILD ON)
  target_compile_options(graphpipe_${folder} PRIVATE ${bundle_flags})
endforeach()
target_link_libraries(graphpipe_wire PUBLIC graphpipe_support)
target_link_libraries(graphpipe_runtime PUBLIC graphpipe_wire graphpipe_support graphpipe_torch)
graphpipe_use_threads(graphpipe_runtime)
if(GRAPHPIPE_CUDA)
  file(GLOB_RECURSE kernels "${bundle}/*.cu")
  graphpipe_add_kernels(graphpipe_runtime "${bundle}" ${kernels})
endif()
add_library(graphpipe::runtime ALIAS graphpipe_runtime)
