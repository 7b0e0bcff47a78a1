#pragma once
// In a file of its own, which includes nothing: generated programs state it, and each of their files pays for what
// runtime/program.h includes.

namespace graphpipe::wire {

/// A name of wire/optimizers.h: the optimizer where nothing is said.
inline constexpr const char* kDefaultOptimizer = "sgd";

}  // namespace graphpipe::wire
