// Data in files: one .npy per name, or ONNX's test data.

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <sys/stat.h>

#include <cstring>
#include <map>
#include <utility>

#include "runtime/error.h"
#include "runtime/io/data.h"
#include "runtime/io/npy.h"
#include "runtime/io/stored_samples.h"
#include "runtime/io/tensor_proto.h"
#include "wire/data_file.h"

namespace graphpipe::runtime {
namespace {

/// An array that a file holds, batch axis first.
struct ArrayView {
  ElementType type = ElementType::kFloat32;
  std::vector<int64_t> dims;
  const std::byte* data = nullptr;
  /// For messages.
  std::string place;
};

bool exists(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0;
}

void check(const DataRow& row, const ArrayView& array) {
  const bool whole = row.tensor.batch_axis < 0;
  const std::vector<int64_t> expected = stored_dims(row, 1);
  const size_t from = whole ? 0 : 1;
  const bool same_rest = array.dims.size() == expected.size() &&
                         std::equal(expected.begin() + from, expected.end(), array.dims.begin() + from);
  const bool has_samples =
      whole || (!array.dims.empty() && array.dims[0] > 0 && array.dims[0] % row.tensor.rows_per_sample == 0);
  if (array.type == row.tensor.type && same_rest && has_samples) return;
  std::string wanted = shape_text(expected);
  if (!whole) wanted += " with any number of samples in place of the first";
  fail(Code::kBadData,
       text(quoted(ModelText(array.place)), " holds ", element_name(array.type), shape_text(array.dims),
            "; the model takes ", element_name(row.tensor.type), wanted),
       "write the file again with this type and shape");
}

/// Cuts samples out of arrays, which are opened once and checked against the row that asks first.
class StoredData : public Data {
 public:
  at::Tensor item(const DataRow& row, int64_t batch, int64_t step, wire::SampleRange range) override {
    auto found = arrays_.find(row.name);
    if (found == arrays_.end()) {
      ArrayView array = open(row);
      check(row, array);
      found = arrays_.emplace(row.name, std::move(array)).first;
    }
    const ArrayView& array = found->second;
    at::Tensor stored =
        at::empty(stored_dims(row, range.size()), at::TensorOptions().dtype(scalar_type(row.tensor.type)));
    auto* to = bytes_in(stored).data();
    if (row.tensor.batch_axis < 0) {
      if (stored.nbytes() > 0) std::memcpy(to, array.data, stored.nbytes());
      return stored;
    }
    const int64_t length = array.dims[0] / row.tensor.rows_per_sample;  // in samples, positive
    const size_t sample_bytes = range.empty() ? 0 : stored.nbytes() / static_cast<size_t>(range.size());
    // A run of consecutive samples at a time; the data starts again where it ends.
    for (int64_t sample = range.first; sample < range.last;) {
      const int64_t at = (step % length * (batch % length) + sample) % length;
      const int64_t run = std::min(range.last - sample, length - at);
      const auto bytes = static_cast<size_t>(run) * sample_bytes;
      if (bytes > 0) std::memcpy(to, array.data + static_cast<size_t>(at) * sample_bytes, bytes);
      to += bytes;
      sample += run;
    }
    return batch_axis_in_place(std::move(stored), row);
  }

 private:
  virtual ArrayView open(const DataRow& row) = 0;

  std::map<std::string, ArrayView> arrays_;
};

class NpyFolder : public StoredData {
 public:
  explicit NpyFolder(std::string folder) : folder_(std::move(folder)) {}

 private:
  ArrayView open(const DataRow& row) override {
    const std::string name = wire::data_file_name(row.name);
    const std::string path = folder_ + "/" + name;
    if (!exists(path))
      fail(Code::kBadData, "the data folder has no " + quoted(ModelText(name)),
           "write one .npy file per model input and label, first axis samples");
    const NpyFile& file = files_.emplace(row.name, NpyFile(path)).first->second;
    return {.type = file.header().type, .dims = file.header().dims, .data = file.data(), .place = name};
  }

  std::string folder_;
  std::map<std::string, NpyFile> files_;
};

class TestDataFolder : public StoredData {
 public:
  explicit TestDataFolder(const std::string& folder) {
    if (exists(folder + "/input_0.pb")) read_set(folder);
    for (int set = 0; exists(set_folder(folder, set) + "/input_0.pb"); ++set) read_set(set_folder(folder, set));
  }

  static bool is_one(const std::string& folder) {
    return exists(folder + "/input_0.pb") || exists(set_folder(folder, 0) + "/input_0.pb");
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

  ArrayView open(const DataRow& row) override {
    const auto found = sets_.find(row.name);
    if (found == sets_.end()) {
      std::string names;
      for (const auto& [name, tensors] : sets_) names += " " + quoted(ModelText(name));
      fail(Code::kBadData, text("the test data hold no tensor ", quoted(ModelText(row.name)), ", only", names),
           "name each TensorProto after its input or label");
    }
    std::vector<at::Tensor> parts;
    for (const StoredTensor& tensor : found->second) parts.push_back(batch_axis_first(tensor, found->second[0], row));
    const bool whole = row.tensor.batch_axis < 0;
    at::Tensor& all = joined_[row.name] = whole ? parts[0] : at::cat(parts).contiguous();
    return {.type = found->second[0].type, .dims = all.sizes().vec(), .data = bytes_in(all).data(), .place = row.name};
  }

  static at::Tensor batch_axis_first(const StoredTensor& tensor, const StoredTensor& first, const DataRow& row) {
    const int64_t axis = row.tensor.batch_axis;
    if (tensor.type != first.type || tensor.dims.size() != first.dims.size() ||
        axis >= static_cast<int64_t>(tensor.dims.size()))
      fail(Code::kBadData, text("the sets' tensors ", quoted(ModelText(row.name)), " differ in type or rank"),
           "write all sets for one model");
    for (size_t i = 0; i < tensor.dims.size(); ++i)
      if (tensor.dims[i] != first.dims[i] && static_cast<int64_t>(i) != axis)
        fail(Code::kBadData, text("the sets' tensors ", quoted(ModelText(row.name)), " differ in more than samples"),
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
  if (TestDataFolder::is_one(folder)) return std::make_unique<TestDataFolder>(folder);
  return std::make_unique<NpyFolder>(folder);
}

}  // namespace graphpipe::runtime
