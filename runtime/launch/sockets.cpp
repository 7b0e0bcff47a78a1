#include "runtime/launch/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/error.h"

namespace graphpipe::runtime {
namespace {

constexpr int kBacklog = 1024;
constexpr const char* kLoopbackAddress = "127.0.0.1";

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null address: all addresses of this host. Empty if the name is unknown.
Addresses look_up(const char* address, int32_t port, int type, int flags, int family = AF_UNSPEC) {
  addrinfo hints{};
  hints.ai_socktype = type;
  hints.ai_flags = flags;
  hints.ai_family = family;
  addrinfo* found = nullptr;
  if (getaddrinfo(address, std::to_string(port).c_str(), &hints, &found) != 0) found = nullptr;
  return {found, &freeaddrinfo};
}

std::string numeric(const sockaddr_storage& name, socklen_t length) {
  char host[NI_MAXHOST] = "";
  const auto* generic = reinterpret_cast<const sockaddr*>(&name);
  if (getnameinfo(generic, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "";
  // A dual-stack socket shows IPv4 addresses in IPv6-mapped form.
  const std::string address = host;
  return address.starts_with("::ffff:") ? address.substr(7) : address;
}

Descriptor listen_on(const addrinfo& address) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  if (!socket) return {};
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0 || listen(socket.get(), kBacklog) != 0) return {};
  return socket;
}

int32_t port_of(int socket) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&name), &length) != 0) return 0;
  const bool newer = name.ss_family == AF_INET6;
  return ntohs(newer ? reinterpret_cast<sockaddr_in6&>(name).sin6_port : reinterpret_cast<sockaddr_in&>(name).sin_port);
}

bool connect_in_time(int socket, const addrinfo& address, std::chrono::milliseconds patience) {
  if (connect(socket, address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd polled{.fd = socket, .events = POLLOUT, .revents = 0};
  int error = 0;
  socklen_t length = sizeof error;
  return poll(&polled, 1, static_cast<int>(patience.count())) == 1 &&
         getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

}  // namespace

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

Descriptor listen_at(const std::string& address, int32_t& port) {
  const std::string where = address == "localhost" ? kLoopbackAddress : address;
  int error = EADDRNOTAVAIL;
  // All addresses: of both families if this host has both.
  for (const int family : {AF_INET6, AF_INET}) {
    const Addresses found =
        look_up(is_loopback(where) ? where.c_str() : nullptr, port, SOCK_STREAM, AI_PASSIVE | AI_NUMERICSERV, family);
    if (!found) continue;
    Descriptor socket = listen_on(*found);
    error = errno;
    if (!socket) continue;
    port = port_of(socket.get());
    return socket;
  }
  fail(Code::kEnvironment, text("cannot listen on port ", port, ": ", std::strerror(error)),
       "choose another --master-port");
}

Descriptor connect_to(const std::string& address, int32_t port, std::chrono::milliseconds patience) {
  const std::string where = address == "localhost" ? kLoopbackAddress : address;
  const Addresses found = look_up(where.c_str(), port, SOCK_STREAM, AI_NUMERICSERV);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    Descriptor socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket || !connect_in_time(socket.get(), *one, patience)) continue;
    const int on = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
  }
  return {};
}

std::pair<Descriptor, Descriptor> connected_pair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(Code::kEnvironment, text("cannot make a connection: ", std::strerror(errno)),
         "raise the limit on open files (ulimit -n)");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// The system picks the address when a datagram socket is connected; nothing is sent.
std::string local_address_towards(const std::string& address, int32_t port) {
  if (is_loopback(address)) return kLoopbackAddress;
  const Addresses found = look_up(address.c_str(), port, SOCK_DGRAM, AI_NUMERICSERV);
  if (found) {
    const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0)
      return address_of(socket.get(), End::kOwn);
  }
  fail(Code::kEnvironment, "no way to " + quoted(ModelText(address)), "check MASTER_ADDR");
}

std::string address_of(int socket, End end) {
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  auto* generic = reinterpret_cast<sockaddr*>(&name);
  const int error = end == End::kOwn ? getsockname(socket, generic, &length) : getpeername(socket, generic, &length);
  const bool is_tcp = error == 0 && (name.ss_family == AF_INET || name.ss_family == AF_INET6);
  return is_tcp ? numeric(name, length) : kLoopbackAddress;
}

}  // namespace graphpipe::runtime
