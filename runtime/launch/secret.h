#pragma once
// The secret of a run, and proofs of knowing it.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "runtime/io/sha256.h"

namespace graphpipe::runtime {

/// A key for hmac_sha256.
using Key = Sha256Digest;

/// HMAC-SHA-256 (RFC 2104) of the concatenated parts. The caller uses parts of fixed size, or includes their sizes in
/// the parts, so that no two messages have the same encoding.
Sha256Digest hmac_sha256(const Key& key, std::initializer_list<std::span<const std::byte>> parts);

/// Constant-time comparison; false if the sizes differ.
bool equal_secretly(std::span<const std::byte> a, std::span<const std::byte> b);

/// Uses the system's generator. Throws RunError (kEnvironment) if there is none.
void fill_random(std::span<std::byte> bytes);

/// The key derived from a textual secret. The text is long and random (wire::kMinSecretLength), so one hash is enough.
Key key_of(std::string_view secret);

/// The secret that the environment names (wire/secret.h). It is removed from the environment, so that no child process
/// inherits it. Throws RunError (kUsage) if there is none, if it is too short, or if others may read or write its file,
/// or own it.
Key find_secret();

}  // namespace graphpipe::runtime
