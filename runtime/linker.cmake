# graphpipe_use_fast_linker(): links what this folder of a project defines from here on with mold or lld, where one is
# installed and nobody has chosen a linker. A stage program's link against LibTorch takes GNU's linker 0.7 s, these 0.15,
# and a plan has a program per device.
function(graphpipe_use_fast_linker)
  if(CMAKE_LINKER_TYPE OR "${CMAKE_EXE_LINKER_FLAGS} $ENV{LDFLAGS}" MATCHES "-fuse-ld")
    return()
  endif()
  find_program(GRAPHPIPE_MOLD ld.mold)
  find_program(GRAPHPIPE_LLD ld.lld)
  mark_as_advanced(GRAPHPIPE_MOLD GRAPHPIPE_LLD)
  if(GRAPHPIPE_MOLD AND (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
    add_link_options(-fuse-ld=mold)
  elseif(GRAPHPIPE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endfunction()
