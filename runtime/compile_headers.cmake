# cmake -DCOMPILER= -DLIBTORCH= -DHEADER= -P compile_headers.cmake: compiles HEADER into HEADER.gch, with the flags that
# codegen/cmake_project.cpp gives the stages of generated projects.
#
# Every file that uses compiled headers instantiates again the templates that they leave pending, and most of those are
# of headers that those of operators include and do not use, such as c10::List of ATen/DeviceGuard.h. Without them stages
# compile several times as fast (docs/performance.md). A LibTorch whose headers need them gets them.
set(command "${COMPILER}" -std=c++20 -O1 -fPIC -isystem "${LIBTORCH}/include" -x c++-header -o "${HEADER}.gch" "${HEADER}")
get_filename_component(folder "${HEADER}" DIRECTORY)
foreach(unused Context DeviceGuard TensorUtils TracerMode)
  file(WRITE "${folder}/lean/ATen/${unused}.h" "#pragma once\n")
endforeach()
execute_process(COMMAND ${command} -I "${folder}/lean" RESULT_VARIABLE failed ERROR_VARIABLE errors)
if(failed)
  string(SUBSTRING "${errors}" 0 1000 errors)
  message(STATUS "LibTorch's headers do not compile without those that they do not use, so stages take longer to compile:\n${errors}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endif()
# What ccache takes for the digest of these 200 MB, instead of reading them for every file (driver/launch/compiler_cache.cpp).
file(SHA256 "${HEADER}.gch" digest)
file(WRITE "${HEADER}.gch.sum" "${digest}\n")
