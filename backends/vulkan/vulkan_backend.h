// The Vulkan backend, which consists of the classes that it holds. Only one thread uses it at a
// time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../../core/backend/backend.h"
#include "../listing.h"

namespace rw::vulkan {

// `choice` is "" (best), an index, "uuid=...", or a part of the device's name. `without` has the
// DeviceInfo::features that are not used. `for_checks`: small products take the tiles that large
// ones take otherwise.
std::unique_ptr<Backend> make_backend(const std::string& choice,
                                      const std::vector<RefusedFeature>& without = {},
                                      bool for_checks = false);
// Starts the background work of a device of make_backend that is used from now on: threads create
// the pipelines that this program used in its last run, and save those that are compiled while it
// runs.
void work_ahead(Backend& device);
// A device's limits as JSON, and a prediction of a device from them (profile.h). `file` is for
// messages.
std::string profile(const std::string& choice, const std::vector<RefusedFeature>& without = {});
std::unique_ptr<Backend> make_dry_backend(const std::string& profile, const std::string& file);
// Lists the devices without opening them, in the order of their indices.
std::vector<DeviceListing> list_devices();

// Messages of the validation layer in this process (REWIND_VALIDATE=1); 0 is the only good number.
uint64_t validation_messages();

}  // namespace rw::vulkan
