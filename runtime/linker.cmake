# graphpipe_use_fast_linker(): links what this folder of a project defines from here on with mold or lld, where one is
# installed and nobody has chosen a linker. A stage program's link against LibTorch takes GNU's linker 0.7 s, these 0.15,
# and a plan has a program per device.
function(graphpipe_use_fast_linker)
  # GCC's own objects of link-time optimisation are not lld's.
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_EXE_LINKER_FLAGS} $ENV{LDFLAGS}")
  if(CMAKE_LINKER_TYPE OR CMAKE_INTERPROCEDURAL_OPTIMIZATION OR flags MATCHES "-fuse-ld|-flto")
    return()
  endif()
  # Looked for each time, where compilers do: one that was removed is not asked for again.
  find_program(mold ld.mold NO_CACHE NO_CMAKE_PATH NO_PACKAGE_ROOT_PATH)
  find_program(lld ld.lld NO_CACHE NO_CMAKE_PATH NO_PACKAGE_ROOT_PATH)
  if(mold AND (CMAKE_CXX_COMPILER_ID STREQUAL "Clang" OR CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12.1))
    add_link_options(-fuse-ld=mold)
  elseif(lld)
    add_link_options(-fuse-ld=lld)
  endif()
endfunction()
