# The build of one folder is one line: its name, the folders that it may include (DEPS, the include law that
# tests/house checks) and the third-party libraries that its .cpp files use.

find_package(Threads REQUIRED)
set(GRAPHPIPE_DEPS_DIR "${PROJECT_SOURCE_DIR}/.deps" CACHE PATH "Where scripts/install_deps put ONNX and LibTorch")
# A program that runs on any Linux of this processor: what a Python wheel holds.
option(GRAPHPIPE_STATIC "Link the compiler statically" OFF)
if(GRAPHPIPE_STATIC)
  # It names no folder of the machine that built it.
  add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=" "-fmacro-prefix-map=${PROJECT_BINARY_DIR}/=")
endif()
if(GRAPHPIPE_COMPILER)
  include(GraphPipeCompilerDependencies)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include("${PROJECT_SOURCE_DIR}/runtime/linker.cmake")
include("${PROJECT_SOURCE_DIR}/runtime/sources.cmake")
graphpipe_use_fast_linker()

function(_graphpipe_common target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE ${GRAPHPIPE_WARNINGS} ${GRAPHPIPE_HARDENED_COMPILE}
    "${GRAPHPIPE_LARGE_FILES}")
  target_link_options(${target} PUBLIC ${GRAPHPIPE_HARDENED_LINK})
endfunction()

# What a release build checks while it runs, since it reads files of strangers: sizes of known buffers, the return
# address on the stack, and tables of functions that nobody can write to.
set(GRAPHPIPE_HARDENED_COMPILE $<$<CONFIG:Release>:-U_FORTIFY_SOURCE> $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>
  $<$<CONFIG:Release>:-fstack-protector-strong>)
set(GRAPHPIPE_HARDENED_LINK $<$<CONFIG:Release>:LINKER:-z,relro,-z,now>)

set(GRAPHPIPE_WARNINGS "" CACHE STRING "Warning flags; the presets set them")

# GCC collects its garbage again and again in files that large, which takes a tenth of its time; with half a gigabyte
# before it begins it never does.
set(GRAPHPIPE_LARGE_FILES "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:SHELL:--param ggc-min-heapsize=524288>")
# What is not optimised for speed in a release build: tests, and folders marked ONCE, whose code runs once per command
# while planners, prices and schedules search. -Og alone leaves every lambda a function of its own. Of what is
# uninitialised GCC warns then where it followed too little to know; the presets for development follow more.
set(GRAPHPIPE_FAST_COMPILE "$<$<CONFIG:Release>:-Og>"
  "$<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-finline-functions-called-once;-Wno-maybe-uninitialized>")

# graphpipe_library(NAME [ONCE] DEPS folders... THIRD_PARTY targets...)
# A folder without .cpp files becomes an interface library.
function(graphpipe_library name)
  cmake_parse_arguments(arg "ONCE" "" "DEPS;THIRD_PARTY" ${ARGN})
  graphpipe_find_sources(sources "${CMAKE_CURRENT_SOURCE_DIR}")
  list(TRANSFORM arg_DEPS PREPEND graphpipe_)
  if(sources)
    add_library(graphpipe_${name} STATIC ${sources})
    _graphpipe_common(graphpipe_${name})
    if(arg_ONCE)
      target_compile_options(graphpipe_${name} PRIVATE ${GRAPHPIPE_FAST_COMPILE})
    endif()
    target_link_libraries(graphpipe_${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_THIRD_PARTY})
  else()
    add_library(graphpipe_${name} INTERFACE)
    target_include_directories(graphpipe_${name} INTERFACE "${PROJECT_SOURCE_DIR}")
    target_compile_features(graphpipe_${name} INTERFACE cxx_std_20)
    target_link_libraries(graphpipe_${name} INTERFACE ${arg_DEPS} ${arg_THIRD_PARTY})
  endif()
endfunction()

# graphpipe_test(NAME DEPS folders... [THIRD_PARTY targets...] [SLOW files...] [PER_FILE]): tests/<name>/*_test.cpp as one
# doctest program, and as one CTest test, or as one for each file of cases. The cases of SLOW files, named without _test.cpp, are
# the test <name>-slow, which is not among the quick ones. Names: the property GRAPHPIPE_TESTS_OF_<name>.
function(graphpipe_test name)
  cmake_parse_arguments(arg "PER_FILE" "" "DEPS;THIRD_PARTY;SLOW" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/main\\.cpp$")
  if(NOT sources)
    return()
  endif()
  list(TRANSFORM arg_DEPS PREPEND graphpipe_)
  add_executable(test_${name} ${sources})
  _graphpipe_common(test_${name})
  target_compile_options(test_${name} PRIVATE ${GRAPHPIPE_FAST_COMPILE})
  target_compile_definitions(test_${name} PRIVATE GRAPHPIPE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    GRAPHPIPE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(test_${name} PRIVATE graphpipe_test_main ${arg_DEPS} ${arg_THIRD_PARTY})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  set(tests ${name})
  if(arg_PER_FILE)
    list(FILTER sources INCLUDE REGEX "_test\\.cpp$")
    set(tests "")
    foreach(source ${sources})
      string(REGEX REPLACE "^.*/(.*)_test\\.cpp$" "\\1" file "${source}")
      add_test(NAME ${name}-${file} COMMAND test_${name} "--source-file=*/${file}_test.cpp")
      list(APPEND tests ${name}-${file})
    endforeach()
  elseif(arg_SLOW)
    list(TRANSFORM arg_SLOW PREPEND "*/")
    list(TRANSFORM arg_SLOW APPEND "_test.cpp")
    list(JOIN arg_SLOW "," slow)
    add_test(NAME ${name} COMMAND test_${name} "--source-file-exclude=${slow}")
    add_test(NAME ${name}-slow COMMAND test_${name} "--source-file=${slow}")
    list(APPEND tests ${name}-slow)
  else()
    add_test(NAME ${name} COMMAND test_${name})
  endif()
  set_property(DIRECTORY PROPERTY GRAPHPIPE_TESTS_OF_${name} ${tests})
  set_tests_properties(${tests} PROPERTIES LABELS quick)
  if(arg_SLOW)
    set_tests_properties(${name}-slow PROPERTIES LABELS slow)
  endif()
endfunction()

if(GRAPHPIPE_RUNTIME)
  include(GraphPipeRuntime)
endif()
