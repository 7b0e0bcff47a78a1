# graphpipe_use_fast_linker(): links what this folder of a project defines from here on with mold or lld, where one is
# installed and nobody has chosen a linker. A stage program's link against LibTorch takes GNU's linker 0.7 s, these 0.15,
# for every plan that is compiled.
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

# graphpipe_expect_shared_cxx_library(): refuses compilers that put a copy of their C++ library into each program, by their
# own settings or because they have no other. LibTorch brings the shared one, and where a process has two, what one of them
# made the other frees: programs end with "free(): invalid pointer".
function(graphpipe_expect_shared_cxx_library)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$")
    return()
  endif()
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1} ${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} \
${CMAKE_EXE_LINKER_FLAGS} ${CMAKE_EXE_LINKER_FLAGS_${type}}")
  if(CMAKE_SYSROOT)
    list(APPEND flags "--sysroot=${CMAKE_SYSROOT}")
  endif()
  if(CMAKE_CXX_COMPILER_TARGET)
    list(APPEND flags "--target=${CMAKE_CXX_COMPILER_TARGET}")
  endif()
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${flags} "-###" -x c++ /dev/null
    OUTPUT_QUIET ERROR_VARIABLE link)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" ${flags} -print-file-name=libstdc++.so
    OUTPUT_VARIABLE library OUTPUT_STRIP_TRAILING_WHITESPACE)
  # A library that the compiler does not have is printed as it was asked for, without a folder.
  set(is_static "\"?-Bstatic\"? \"?-lstdc[+][+]\"? ")
  if(link MATCHES "${is_static}" OR (link MATCHES "-lstdc[+][+]" AND NOT IS_ABSOLUTE "${library}"))
    message(FATAL_ERROR "The compiler '${CMAKE_CXX_COMPILER}' links libstdc++ statically, and LibTorch needs the shared one: "
      "programs with both crash when they end. Take a compiler that links the shared one (CXX=g++), or leave "
      "-static-libstdc++ out of its settings")
  endif()
endfunction()
