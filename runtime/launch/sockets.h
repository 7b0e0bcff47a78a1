#pragma once
// TCP sockets between ranks.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "support/descriptor.h"

namespace graphpipe::runtime {

bool is_loopback(const std::string& address);

/// A listening socket at a loopback address, or at all addresses of this host if `address` is not a loopback address.
/// Port 0: the system chooses one; sets `port`. Throws RunError (kEnvironment).
Descriptor listen_at(const std::string& address, int32_t& port);

/// A connection, or none if the other end does not accept it within `patience`.
Descriptor connect_to(const std::string& address, int32_t port, std::chrono::milliseconds patience);

/// The two ends of a connection that no other process can reach. Throws RunError (kEnvironment).
std::pair<Descriptor, Descriptor> connected_pair();

/// The local address from which this host reaches another one, at which that one can reach it. Throws RunError
/// (kEnvironment).
std::string local_address_towards(const std::string& address, int32_t port);

enum class End { kOwn, kOther };
/// The numeric address of one end of a connection; 127.0.0.1 if it does not leave the host by TCP.
std::string address_of(int socket, End end);

}  // namespace graphpipe::runtime
