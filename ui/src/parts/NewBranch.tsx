import { Button, Modal, Stack, Text, TextInput } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { api } from "../api";
import { confirmDone, report, useShared } from "../state";

export function NewBranch({ opened, close }: { opened: boolean; close: () => void }) {
  const { moment, setMoment, refresh } = useShared();
  const [name, setName] = useState("");
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await api.createBranch(name.trim(), moment.branch);
      confirmDone(`Branch ${name.trim()} starts at ${moment.branch}.`);
      close();
      await refresh();
      setMoment({ branch: name.trim() });
    } catch (error) {
      report(error);
    }
  };
  return (
    <Modal opened={opened} onClose={close} title="New branch" size="sm">
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label="Name"
            placeholder="draft/roles"
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            data-autofocus
            required
            withAsterisk={false}
          />
          <Text size="xs" c="dimmed">
            It starts as {moment.branch} is now. No data is copied.
          </Text>
          <Button type="submit">Create branch</Button>
        </Stack>
      </form>
    </Modal>
  );
}
