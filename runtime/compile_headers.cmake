# cmake -DCOMPILER= -DLIBTORCH= -DHEADER= -P compile_headers.cmake: compiles HEADER into HEADER.gch, with the flags that
# codegen/cmake_project.cpp gives the stages of generated projects.
#
# Every file that uses compiled headers instantiates again the templates that they leave pending, and most of those are
# of headers that those of operators include and do not use, such as c10::List of ATen/DeviceGuard.h, of conversions of
# c10::Scalar, which stages never read, or of what <cmath> has of Bessel functions and <atomic> of waiting. Without them
# stages compile several times as fast (docs/performance.md). A LibTorch whose headers need them gets them.
set(command "${COMPILER}" -std=c++20 -Og -fPIC -isystem "${LIBTORCH}/include" -x c++-header -o "${HEADER}.gch" "${HEADER}")
get_filename_component(folder "${HEADER}" DIRECTORY)
foreach(unused Context DeviceGuard TensorUtils TracerMode)
  file(WRITE "${folder}/lean/ATen/${unused}.h" "#pragma once\n")
endforeach()
foreach(unused specfun atomic_wait)
  file(WRITE "${folder}/lean/bits/${unused}.h" "#pragma once\n")
endforeach()
# Of the conversions of c10::Scalar those that make one; the others are declared alone, and a stage that did read a scalar
# would not link.
file(WRITE "${folder}/lean/c10/util/overflows.h" [[
#pragma once
#include <c10/util/TypeSafeSignMath.h>
#include <c10/util/complex.h>
#include <cmath>
namespace c10 {
template <typename To, typename From>
bool overflows(From value, bool strict_unsigned = false);
}
]])
file(WRITE "${folder}/lean/c10/util/TypeCast.h" [[
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Float8_e8m0fnu.h>
#include <c10/util/Half.h>
#include <c10/util/overflows.h>
namespace c10 {
template <typename To, typename From>
To convert(From value) {
  return static_cast<To>(value);
}
template <typename To, typename From>
To checked_convert(From value, const char* name);
}
]])
execute_process(COMMAND ${command} -I "${folder}/lean" RESULT_VARIABLE failed ERROR_VARIABLE errors)
if(NOT failed)
  file(WRITE "${folder}/lean/program.cpp" [[
int main() {
  const at::Tensor x = at::full({2}, 1.5);
  const at::Tensor y = at::add(x, 2, 0.5).mul_(true).clamp_(0, 4.0F);
  return static_cast<int>(at::sum(at::where(y.gt(1), y, 0.0)).numel()) - 1;
}
]])
  execute_process(COMMAND "${COMPILER}" -std=c++20 -Og -fPIC -isystem "${LIBTORCH}/include" -include "${HEADER}"
    -o "${folder}/lean/program" "${folder}/lean/program.cpp" "-L${LIBTORCH}/lib" "-Wl,-rpath,${LIBTORCH}/lib"
    -Wl,--unresolved-symbols=ignore-in-shared-libs -ltorch_cpu -lc10 RESULT_VARIABLE failed ERROR_VARIABLE errors)
endif()
if(failed)
  string(SUBSTRING "${errors}" 0 1000 errors)
  message(STATUS "LibTorch's headers do not compile without those that they do not use, so stages take longer to compile:\n${errors}")
  execute_process(COMMAND ${command} COMMAND_ERROR_IS_FATAL ANY)
endif()
# What ccache takes for the digest of these 145 MB, instead of reading them for every file (driver/launch/compiler_cache.cpp).
file(SHA256 "${HEADER}.gch" digest)
file(WRITE "${HEADER}.gch.sum" "${digest}\n")
