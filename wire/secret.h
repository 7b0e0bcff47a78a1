#pragma once
// How the ranks of a run learn its secret, by which they know each other: a variable, which `graphpipe run` sets for
// the processes that it starts, or a file that a variable names. Never an argument: every user of a host may read the
// arguments of all processes, but the environment of a process only its own user (proc(5), /proc/PID/environ).

#include <cstddef>

namespace graphpipe::wire {

/// The secret itself, kMinSecretLength characters or more. It wins over the file.
inline constexpr const char* kSecretVariable = "GRAPHPIPE_SECRET";
/// A regular file of the same user that nobody else may read or write (mode 0600) and that holds the secret.
inline constexpr const char* kSecretFileVariable = "GRAPHPIPE_SECRET_FILE";
/// Characters, without the line's end: 32 random bytes in base64 or hexadecimal digits have more.
inline constexpr size_t kMinSecretLength = 32;

}  // namespace graphpipe::wire
