# What each library consists of: GraphPipe's build and bundled projects include this one file, so that a bundled runtime
# is compiled in units that the build has compiled before.

# A release build reads the files of a folder in batches (unity builds of CMake): common headers are parsed once per
# batch, so names in anonymous namespaces are unique within a folder. The presets for development compile every file
# alone, which shows a missing include.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)

# graphpipe_find_sources(VARIABLE FOLDER): the .cpp files of the folder and its sub-folders. Of CUDA and NCCL, either
# those that use them or those that say that they are not there.
function(graphpipe_find_sources variable folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(GRAPHPIPE_CUDA)
    list(FILTER sources EXCLUDE REGEX "/no_(cuda|nccl)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/(cuda(_recorder)?|nccl)\\.cpp$")
  endif()
  # Objects of their own: those of CUDA and NCCL, so that the other units are the same with them and without, and so that
  # tests can put an NCCL in front; and what is optimised more than its folder.
  set(alone ${sources})
  list(FILTER alone INCLUDE REGEX "/((no_)?(cuda|nccl)|cuda_recorder|sample_order|scan_numbers)\\.cpp$")
  set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()
