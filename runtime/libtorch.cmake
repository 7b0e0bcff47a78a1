# graphpipe_torch: the LibTorch at GRAPHPIPE_LIBTORCH and, where GRAPHPIPE_CUDA is on, the CUDA runtime and NCCL. By their
# files, since LibTorch's own package insists on a CUDA toolkit where it was built with CUDA. GraphPipe's build, the
# installed runtime and bundled projects include this one file. Where GRAPHPIPE_CUDA is not set, it becomes what is found.
# Defines graphpipe_use_fast_linker, graphpipe_expect_shared_cxx_library, graphpipe_use_threads and graphpipe_add_kernels
# too.

include("${CMAKE_CURRENT_LIST_DIR}/linker.cmake")
if(NOT TARGET graphpipe_torch)
  if(NOT EXISTS "${GRAPHPIPE_LIBTORCH}/lib/libtorch_cpu.so")
    message(FATAL_ERROR "No LibTorch at '${GRAPHPIPE_LIBTORCH}': set GRAPHPIPE_LIBTORCH to its folder, the one with "
      "include/ and lib/ (2.11 to 2.15)")
  endif()
  graphpipe_expect_shared_cxx_library()
  find_package(Threads REQUIRED)

  if(NOT DEFINED GRAPHPIPE_CUDA OR GRAPHPIPE_CUDA)
    find_package(CUDAToolkit QUIET)
    # Wheels of LibTorch have NCCL beside them, without the name that linkers look for. A process has one NCCL: that which
    # LibTorch was built with comes first.
    set(graphpipe_nccl "${GRAPHPIPE_LIBTORCH}/../nvidia/nccl")
    find_library(GRAPHPIPE_NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
      HINTS "${GRAPHPIPE_LIBTORCH}/lib" "${graphpipe_nccl}/lib" "${CUDAToolkit_LIBRARY_DIR}")
    find_path(GRAPHPIPE_NCCL_INCLUDE nccl.h HINTS "${graphpipe_nccl}/include" ${CUDAToolkit_INCLUDE_DIRS})
    set(graphpipe_cuda_lacks "")
    if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
      list(APPEND graphpipe_cuda_lacks "a CUDA toolkit with nvcc")
    endif()
    if(NOT GRAPHPIPE_NCCL_LIBRARY OR NOT GRAPHPIPE_NCCL_INCLUDE)
      list(APPEND graphpipe_cuda_lacks "NCCL (nccl.h and libnccl.so)")
    endif()
    if(NOT EXISTS "${GRAPHPIPE_LIBTORCH}/lib/libc10_cuda.so")
      list(APPEND graphpipe_cuda_lacks "a LibTorch that was built with CUDA")
    endif()
    list(JOIN graphpipe_cuda_lacks ", " graphpipe_cuda_lacks)
    if(NOT DEFINED GRAPHPIPE_CUDA)
      set(graphpipe_cuda_found OFF)
      if(graphpipe_cuda_lacks STREQUAL "")
        set(graphpipe_cuda_found ON)
      endif()
      option(GRAPHPIPE_CUDA "Build the CUDA device and the NCCL transport" ${graphpipe_cuda_found})
    elseif(NOT graphpipe_cuda_lacks STREQUAL "")
      message(FATAL_ERROR "GRAPHPIPE_CUDA is on, but not found: ${graphpipe_cuda_lacks}. "
        "Set CUDAToolkit_ROOT, GRAPHPIPE_NCCL_LIBRARY and GRAPHPIPE_NCCL_INCLUDE, or GRAPHPIPE_LIBTORCH")
    endif()
  endif()

  add_library(graphpipe_torch INTERFACE)
  target_include_directories(graphpipe_torch SYSTEM INTERFACE "${GRAPHPIPE_LIBTORCH}/include"
    "${GRAPHPIPE_LIBTORCH}/include/torch/csrc/api/include")
  target_link_libraries(graphpipe_torch INTERFACE "${GRAPHPIPE_LIBTORCH}/lib/libtorch_cpu.so"
    "${GRAPHPIPE_LIBTORCH}/lib/libc10.so" Threads::Threads ${CMAKE_DL_LIBS})
  # The threads of our own loops are those of LibTorch's: of its OpenMP library, of which wheels bring a copy.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    file(GLOB graphpipe_openmp "${GRAPHPIPE_LIBTORCH}/lib/libgomp*.so*")
    list(APPEND graphpipe_openmp gomp)
    list(GET graphpipe_openmp 0 graphpipe_openmp)
    target_link_libraries(graphpipe_torch INTERFACE "${graphpipe_openmp}")
  endif()
  # Stage programs read the weights and data of strangers: their tables of functions are read-only once they are loaded.
  target_link_options(graphpipe_torch INTERFACE "LINKER:-z,relro,-z,now" "-Wl,-rpath,${GRAPHPIPE_LIBTORCH}/lib"
    "-Wl,--unresolved-symbols=ignore-in-shared-libs")
  if(GRAPHPIPE_CUDA)
    # Not libtorch_cuda: the programs load it when they are to run on a GPU, so that they start on hosts without one.
    target_include_directories(graphpipe_torch SYSTEM INTERFACE "${GRAPHPIPE_NCCL_INCLUDE}")
    target_link_libraries(graphpipe_torch INTERFACE "${GRAPHPIPE_LIBTORCH}/lib/libc10_cuda.so"
      "${GRAPHPIPE_NCCL_LIBRARY}" CUDA::cudart)
  endif()
endif()

# graphpipe_use_threads(TARGET): at::parallel_for in its files runs on the threads of --threads. Without OpenMP it is a
# plain loop. Of GCC only: LibTorch is built with GCC's OpenMP, and a process has one.
function(graphpipe_use_threads target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fopenmp)
  endif()
endfunction()

# graphpipe_add_kernels(TARGET ROOT FILES...): nvcc compiles kernels, whose includes begin at ROOT, into objects of the
# target. As a command: CMake's own CUDA language would try nvcc out wherever a project is configured. Without fused
# multiply-adds, so that what CPU and GPU both compute comes out the same. nvcc's own choice of GPUs carries code that
# drivers translate for later ones.
function(graphpipe_add_kernels target root)
  foreach(file ${ARGN})
    get_filename_component(name "${file}" NAME)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.o")
    add_custom_command(OUTPUT "${object}"
      COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" -std=c++20 -O2 -fmad=false --expt-relaxed-constexpr
        -ccbin "${CMAKE_CXX_COMPILER}" -Xcompiler -fPIC "-I${root}" -MD -MF "${object}.d" -c "${file}" -o "${object}"
      DEPENDS "${file}" DEPFILE "${object}.d" COMMENT "Compiling kernels of ${name}" VERBATIM)
    target_sources(${target} PRIVATE "${object}")
  endforeach()
endfunction()
