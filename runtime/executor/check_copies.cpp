#include "runtime/executor/check_copies.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/error.h"
#include "runtime/executor/resolve.h"
#include "runtime/io/sha256.h"
#include "runtime/tensors.h"

namespace graphpipe::runtime {
namespace {

// The record of one copy; the parameter's name follows.
struct CopyRecord {
  int32_t stage = 0, replica = 0;
  int32_t group = -1;  // where several stages share it, else -1
  uint32_t name_size = 0;
  Sha256Digest digest{};
};

struct Copy {
  CopyRecord record;
  std::string name;
};

std::vector<Copy> read_copies(std::span<const std::byte> bytes) {
  std::vector<Copy> copies;
  while (!bytes.empty()) {
    Copy copy;
    const bool whole = bytes.size() >= sizeof copy.record;
    if (whole) std::memcpy(&copy.record, bytes.data(), sizeof copy.record);
    if (!whole || bytes.size() - sizeof copy.record < copy.record.name_size)
      fail(Code::kPeerFailed, "a rank sent malformed digests of its parameters", "run all ranks from one folder");
    bytes = bytes.subspan(sizeof copy.record);
    copy.name.assign(reinterpret_cast<const char*>(bytes.data()), copy.record.name_size);
    bytes = bytes.subspan(copy.record.name_size);
    copies.push_back(std::move(copy));
  }
  return copies;
}

std::string place_text(const CopyRecord& record) { return text("stage ", record.stage, ", replica ", record.replica); }

Diagnostic drifted(const Copy& first, const std::vector<const Copy*>& others) {
  std::string places;
  for (const Copy* other : others) places += text(places.empty() ? "" : "; ", place_text(other->record));
  return {.code = Code::kCheckFailed,
          .origin = ModelText(first.name),
          .message = text("its copies have parted: that of ", place_text(first.record),
                          " holds other numbers than that of ", places),
          .hint =
              "nothing was saved: which of them is right is not known; start again from an earlier state, and look at "
              "the memory of the hosts; if it happens again on other hosts it is a defect of this program"};
}

bool has_copies(const PlanTable& plan, const StageState& state, size_t index) {
  return plan.stages[static_cast<size_t>(state.entry->stage)].replicas > 1 ||
         shared_group(plan, state.entry->params[index].group) != nullptr;
}

void add_digest(const PlanTable& plan, const StageState& state, size_t index, const at::Tensor& values,
                std::vector<std::byte>& out) {
  const ParamRow& param = state.entry->params[index];
  const CopyRecord record{.stage = state.entry->stage,
                          .replica = state.replica,
                          .group = shared_group(plan, param.group) != nullptr ? param.group : -1,
                          .name_size = static_cast<uint32_t>(std::strlen(param.name)),
                          .digest = sha256(bytes_in(values.contiguous()))};
  const auto head = std::as_bytes(std::span(&record, 1)), name = std::as_bytes(std::span(param.name, record.name_size));
  out.insert(out.end(), head.begin(), head.end());
  out.insert(out.end(), name.begin(), name.end());
}

}  // namespace

std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state, const Device& device) {
  std::vector<std::byte> out;
  for (const size_t index : state.trainable)
    if (has_copies(plan, state, index)) add_digest(plan, state, index, device.download(state.weights[index]), out);
  return out;
}

std::vector<std::byte> digest_copies(const PlanTable& plan, const StageState& state,
                                     std::span<const NamedTensor> tensors) {
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& named : tensors) by_name.emplace(named.name, &named.tensor);
  std::vector<std::byte> out;
  for (const size_t index : state.trainable) {
    const auto found = by_name.find(state.entry->params[index].name);
    if (found != by_name.end() && has_copies(plan, state, index)) add_digest(plan, state, index, *found->second, out);
  }
  return out;
}

void check_copies(std::span<const std::vector<std::byte>> digests) {
  // A shared parameter may have a different name in each stage; other parameters are identified by stage and name.
  std::map<std::pair<int32_t, std::string>, std::vector<Copy>> parameters;
  for (const std::vector<std::byte>& bytes : digests)
    for (Copy& copy : read_copies(bytes)) {
      const int32_t group = copy.record.group;
      const auto key = group >= 0 ? std::pair(-1 - group, std::string()) : std::pair(copy.record.stage, copy.name);
      parameters[key].push_back(std::move(copy));
    }
  Diagnostics problems;
  for (auto& [key, copies] : parameters) {
    std::ranges::sort(copies, {}, [](const Copy& copy) { return std::pair(copy.record.stage, copy.record.replica); });
    std::vector<const Copy*> others;
    for (const Copy& copy : copies)
      if (copy.record.digest != copies.front().record.digest) others.push_back(&copy);
    if (!others.empty()) problems.push_back(drifted(copies.front(), others));
  }
  if (!problems.empty()) throw RunError(problems);
}

}  // namespace graphpipe::runtime
