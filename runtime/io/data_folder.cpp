// Data in files: one .npy per name, or ONNX's test data.

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/data.h"
#include "runtime/io/stored_samples.h"
#include "runtime/io/tensor_proto.h"
#include "wire/check_data.h"
#include "wire/scan_numbers.h"

namespace graphpipe::runtime {
namespace {

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

/// Cuts samples out of arrays, which are opened once and checked against the row that asks first.
class StoredData : public Data {
 public:
  at::Tensor item(const DataRow& row, int64_t batch, int64_t step, wire::SampleRange range) override {
    const Opened& opened = open_once(row);
    at::Tensor stored =
        at::empty(stored_dims(row, range.size()), at::TensorOptions().dtype(scalar_type(row.tensor.type)));
    auto* to = bytes_in(stored).data();
    if (row.tensor.batch_axis < 0) {
      copy_samples(opened, 0, 1, stored.nbytes(), to);
      return stored;
    }
    const int64_t length = opened.array.dims[0] / row.tensor.rows_per_sample;  // in samples, positive
    const size_t sample_bytes = range.empty() ? 0 : stored.nbytes() / static_cast<size_t>(range.size());
    // A run of consecutive samples at a time; the data starts again where it ends.
    for (int64_t sample = range.first; sample < range.last;) {
      const int64_t at = (step % length * (batch % length) + sample) % length;
      const int64_t run = std::min(range.last - sample, length - at);
      copy_samples(opened, at, run, sample_bytes, to);
      to += static_cast<size_t>(run) * sample_bytes;
      sample += run;
    }
    return batch_axis_in_place(std::move(stored), row);
  }

  virtual Result<wire::DataArray> open(const wire::DataEntry& entry) = 0;

 private:
  struct Opened {
    wire::DataEntry entry;
    wire::DataArray array;
    mutable bool reported = false;
  };

  const Opened& open_once(const DataRow& row) {
    auto found = arrays_.find(row.name);
    if (found == arrays_.end()) {
      const wire::DataEntry entry = entry_of(row);
      Opened opened{.entry = entry, .array = value_or_throw(open(entry))};
      value_or_throw(wire::check_array(entry, opened.array));
      found = arrays_.emplace(row.name, std::move(opened)).first;
    }
    return found->second;
  }

  static void copy_samples(const Opened& opened, int64_t first, int64_t samples, size_t sample_bytes, std::byte* to) {
    const auto skipped = static_cast<size_t>(first) * sample_bytes;
    const auto elements = opened.array.elements.subspan(skipped, static_cast<size_t>(samples) * sample_bytes);
    if (elements.empty()) return;
    // The launcher has looked already; the file may have changed since.
    value_or_throw(wire::check_ids(opened.entry, opened.array, first, samples));
    if (!opened.reported) report_not_finite(opened, skipped, elements);
    std::memcpy(to, elements.data(), elements.size());
  }

  // A mask may hold infinities on purpose, so this is no error here; a loss that is not finite ends the run.
  static void report_not_finite(const Opened& opened, size_t skipped, std::span<const std::byte> elements) {
    const ElementType type = opened.array.type;
    const std::optional<size_t> found = wire::first_not_finite(type, elements);
    if (!found) return;
    opened.reported = true;
    const Diagnostic warning{
        .code = Code::kBadData,
        .severity = Severity::kWarning,
        .origin = ModelText(opened.array.file),
        .message = text(wire::place_of(opened.array, skipped / static_cast<size_t>(element_size(type)) + *found),
                        " is ", wire::not_finite_name(type, elements, *found)),
        .hint = "clean the data where that is not meant; further ones of this file are not reported"};
    std::fprintf(stderr, "%s\n", to_line(warning).c_str());
  }

  std::map<std::string, Opened> arrays_;
};

class NpyFolder : public StoredData {
 public:
  explicit NpyFolder(const std::string& folder) : files_(folder) {}
  Result<wire::DataArray> open(const wire::DataEntry& entry) override { return files_.open(entry); }

 private:
  wire::NpyFolder files_;
};

class TestDataFolder : public StoredData {
 public:
  explicit TestDataFolder(const std::string& folder) {
    if (exists(folder + "/input_0.pb")) read_set(folder);
    for (int set = 0; exists(set_folder(folder, set) + "/input_0.pb"); ++set) read_set(set_folder(folder, set));
  }

  Result<wire::DataArray> open(const wire::DataEntry& entry) override {
    const auto found = sets_.find(entry.name);
    if (found == sets_.end()) {
      std::string names;
      for (const auto& [name, tensors] : sets_) names += " " + quoted(ModelText(name));
      return bad_data(entry, "the test data hold no such tensor, only" + names,
                      "name each TensorProto after its input or label");
    }
    std::vector<at::Tensor> parts;
    for (const StoredTensor& tensor : found->second) {
      GP_TRY(at::Tensor part, batch_axis_first(tensor, found->second[0], entry));
      parts.push_back(std::move(part));
    }
    const at::Tensor& all = joined_[entry.name] = entry.has_samples() ? at::cat(parts).contiguous() : parts[0];
    return wire::DataArray{
        .type = found->second[0].type, .dims = all.sizes().vec(), .elements = bytes_in(all), .file = entry.name};
  }

 private:
  static std::string set_folder(const std::string& folder, int set) { return text(folder, "/test_data_set_", set); }

  void read_set(const std::string& folder) {
    for (const std::string_view kind : {"input_", "output_"})
      for (int i = 0; exists(text(folder, "/", kind, i, ".pb")); ++i) {
        const std::string path = text(folder, "/", kind, i, ".pb");
        const MappedFile file = value_or_throw(MappedFile::open(path));
        StoredTensor tensor = read_tensor_proto(file.bytes(), path);
        std::string name = tensor.name.empty() ? text(kind, i) : tensor.name;
        sets_[std::move(name)].push_back(std::move(tensor));
      }
  }

  static Diagnostic bad_data(const wire::DataEntry& entry, std::string message, std::string hint) {
    return {.code = Code::kBadData,
            .origin = ModelText(entry.name),
            .message = std::move(message),
            .hint = std::move(hint)};
  }

  static Result<at::Tensor> batch_axis_first(const StoredTensor& tensor, const StoredTensor& first,
                                             const wire::DataEntry& entry) {
    const int64_t axis = entry.batch_axis;
    if (tensor.type != first.type || tensor.dims.size() != first.dims.size() ||
        axis >= static_cast<int64_t>(tensor.dims.size()))
      return bad_data(entry, "the sets' tensors of this name differ in type or rank", "write all sets for one model");
    for (size_t i = 0; i < tensor.dims.size(); ++i)
      if (tensor.dims[i] != first.dims[i] && static_cast<int64_t>(i) != axis)
        return bad_data(entry, "the sets' tensors of this name differ in more than samples",
                        "write all sets for one model");
    at::Tensor copy = at::empty(tensor.dims, at::TensorOptions().dtype(scalar_type(tensor.type)));
    if (!tensor.bytes.empty()) std::memcpy(bytes_in(copy).data(), tensor.bytes.data(), tensor.bytes.size());
    return axis > 0 ? copy.movedim(axis, 0).contiguous() : copy;
  }

  std::map<std::string, std::vector<StoredTensor>> sets_;
  std::map<std::string, at::Tensor> joined_;
};

}  // namespace

std::unique_ptr<Data> data_folder(const std::string& folder) {
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    fail(Code::kUnreadableFile, quoted(ModelText(folder)) + " is not a folder", "pass the data folder with --data");
  if (wire::is_test_data_folder(folder)) return std::make_unique<TestDataFolder>(folder);
  return std::make_unique<NpyFolder>(folder);
}

Diagnostics check_data_folder(const std::string& generated_folder, const std::string& folder, int64_t steps) {
  if (!wire::is_test_data_folder(folder)) return wire::check_data_folder(generated_folder, folder, steps);
  TestDataFolder data(folder);
  return wire::check_data(
      value_or_throw(wire::read_data_table(generated_folder)), [&](const wire::DataEntry& entry) { return data.open(entry); },
      steps);
}

}  // namespace graphpipe::runtime
