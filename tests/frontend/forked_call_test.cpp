#include "frontend/forked_call.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

using namespace graphpipe::frontend;

namespace {

using Ending = ForkedAnswer::Ending;

ForkedAnswer call(const std::function<std::string(const StepMarker&)>& function, ForkLimits limits = {}) {
  return call_forked(limits, function);
}

}  // namespace

TEST_CASE("what a forked function returns arrives whole, whatever its size") {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{10'000'000}}) {
    const std::string expected(size, 't');
    const ForkedAnswer answer = call([&](const StepMarker&) { return expected; });
    CHECK(answer.ending == Ending::kAnswered);
    CHECK(answer.text == expected);
  }
}

TEST_CASE("a crash ends the copy alone, and the step it came in is known") {
  const ForkedAnswer answer = call([](const StepMarker& mark) -> std::string {
    mark(3);
    mark(7);
    std::raise(SIGSEGV);
    return "survived";
  });
  CHECK(answer.ending == Ending::kCrashed);
  CHECK(answer.step == 7);
  CHECK(answer.text.empty());
  CHECK(call([](const StepMarker&) -> std::string { std::abort(); }).ending == Ending::kCrashed);
  CHECK(call([](const StepMarker&) -> std::string { throw 1; }).ending == Ending::kCrashed);
  // An exit that nobody asked for is no answer either.
  CHECK(call([](const StepMarker&) -> std::string { std::_Exit(0); }).ending == Ending::kCrashed);
}

TEST_CASE("what the copy changes stays in the copy") {
  int value = 1;
  CHECK(call([&](const StepMarker&) { return std::to_string(++value); }).text == "2");
  CHECK(value == 1);
}

TEST_CASE("memory and time have limits") {
  const auto endless = [](const StepMarker&) {
    std::atomic<uint64_t> count = 0;
    while (count.load() != 1) count += 2;
    return std::string();
  };
  CHECK(call(endless, {.cpu_seconds = 1}).ending == Ending::kOutOfTime);
  const ForkedAnswer longer =
      call([](const StepMarker&) { return std::string(1 << 20, 'x'); }, {.answer_bytes = 1 << 10});
  CHECK(longer.ending == Ending::kOutOfMemory);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const auto hungry = [](const StepMarker&) {
    std::vector<std::string> parts;
    for (int i = 0; i < 4096; ++i) parts.emplace_back(size_t{1} << 20, 'x');
    return parts.back();
  };
  CHECK(call(hungry, {.memory_bytes = 64 << 20}).ending == Ending::kOutOfMemory);
#endif
}

TEST_CASE("no process of a forked call is left behind") {
  for (int i = 0; i < 20; ++i)
    call([](const StepMarker&) -> std::string {
      std::raise(SIGKILL);
      return {};
    });
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
}

namespace {

// What a request asks of the server: to crash, to spend its time, to answer.
std::string serve(std::string_view request, const StepMarker& mark) {
  static int calls = 0;
  ++calls;
  if (request == "crash") {
    mark(5);
    std::raise(SIGSEGV);
  }
  for (std::atomic<uint64_t> spent = 0; request == "spend" && spent.load() != 1;) spent += 2;
  if (request == "exhaust") throw std::bad_alloc();
  return std::to_string(calls) + ":" + std::string(request);
}

}  // namespace

TEST_CASE("a server answers many calls, and where it fails the next call has a new one") {
  ForkedServer server(serve);
  for (int number = 1; number <= 3; ++number) {
    const ForkedAnswer answer = server.call({}, "a");
    CHECK(answer.ending == Ending::kAnswered);
    CHECK(answer.text == std::to_string(number) + ":a");
  }
  const std::string large(3'000'000, 'x');
  CHECK(server.call({}, large).text == "4:" + large);
  const ForkedAnswer crash = server.call({}, "crash");
  CHECK(crash.ending == Ending::kCrashed);
  CHECK(crash.step == 5);
  CHECK(server.call({}, "b").text == "1:b");
  CHECK(server.call({}, "exhaust").ending == Ending::kOutOfMemory);
  CHECK(server.call({.cpu_seconds = 1}, "spend").ending == Ending::kOutOfTime);
  CHECK(server.call({}, "").text == "1:");
  CHECK(server.call({.answer_bytes = 1000}, large).ending == Ending::kOutOfMemory);
}

TEST_CASE("limits of a server are those of each call, and it is renewed now and then") {
  ForkedServer server(serve);
  std::string last;
  for (int call = 0; call < ForkedServer::kMaxCalls; ++call) last = server.call({.cpu_seconds = 1}, "").text;
  CHECK(last == std::to_string(ForkedServer::kMaxCalls) + ":");
  CHECK(server.call({}, "").text == "1:");
}
