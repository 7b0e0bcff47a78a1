#pragma once
// GP_CHECK guards a promise of our own code. It is always compiled in; a failure is a defect of
// GraphPipe, not of its input, and ends the process with exit code 70.

namespace graphpipe {

[[noreturn]] void fail_check(const char* condition, const char* file, int line);

}  // namespace graphpipe

#define GP_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::graphpipe::fail_check(#condition, __FILE__, __LINE__))
