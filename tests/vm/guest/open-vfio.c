/*
 * open-vfio GROUP ADDRESS: opens a PCI function through VFIO, as a userspace driver in a container does, says so on
 * stdout, and holds it until its stdin ends. GROUP is a path such as /dev/vfio/20 or /dev/vfio/noiommu-0.
 */
#include <err.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	struct vfio_device_info info = { .argsz = sizeof(info) };
	int container, group, device, iommu;

	if (argc != 3)
		errx(2, "usage: open-vfio GROUP ADDRESS");
	iommu = strstr(argv[1], "noiommu-") ? VFIO_NOIOMMU_IOMMU : VFIO_TYPE1_IOMMU;

	container = open("/dev/vfio/vfio", O_RDWR);
	if (container < 0)
		err(1, "/dev/vfio/vfio");
	group = open(argv[1], O_RDWR);
	if (group < 0)
		err(1, "%s", argv[1]);
	if (ioctl(group, VFIO_GROUP_GET_STATUS, &status))
		err(1, "VFIO_GROUP_GET_STATUS");
	if (!(status.flags & VFIO_GROUP_FLAGS_VIABLE))
		errx(1, "%s is not viable", argv[1]);
	if (ioctl(group, VFIO_GROUP_SET_CONTAINER, &container))
		err(1, "VFIO_GROUP_SET_CONTAINER");
	if (ioctl(container, VFIO_SET_IOMMU, iommu))
		err(1, "VFIO_SET_IOMMU");
	device = ioctl(group, VFIO_GROUP_GET_DEVICE_FD, argv[2]);
	if (device < 0)
		err(1, "VFIO_GROUP_GET_DEVICE_FD %s", argv[2]);
	if (ioctl(device, VFIO_DEVICE_GET_INFO, &info))
		err(1, "VFIO_DEVICE_GET_INFO");

	printf("opened %s: %u regions, %u interrupts\n", argv[2], info.num_regions, info.num_irqs);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
