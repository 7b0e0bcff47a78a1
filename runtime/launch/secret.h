#pragma once
// The secret of a run, and what proves that somebody knows it.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "runtime/io/sha256.h"

namespace graphpipe::runtime {

/// A key for hmac_sha256.
using Key = Sha256Digest;

/// HMAC-SHA-256 (RFC 2104) of the parts, one behind the other. The caller makes parts of fixed size, or says their
/// sizes in the parts, so that no two messages read alike.
Sha256Digest hmac_sha256(const Key& key, std::initializer_list<std::span<const std::byte>> parts);

/// Takes the same time wherever the texts differ; false where their sizes do.
bool equal_secretly(std::span<const std::byte> a, std::span<const std::byte> b);

/// From the system's generator. Throws RunError (kEnvironment) where it has none.
void fill_random(std::span<std::byte> bytes);

/// The key that stands for a secret in words. The words are long and random (wire::kMinSecretLength), so one hash does.
Key key_of(std::string_view secret);

/// The secret that the environment names (wire/secret.h). It is taken out of the environment, so that no process that
/// this one starts gets it. Throws RunError (kUsage) where there is none, where it is too short, and where others may
/// read or write its file, or own it.
Key find_secret();

}  // namespace graphpipe::runtime
