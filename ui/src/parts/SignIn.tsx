import { Anchor, Button, Card, Center, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { type FormEvent, useState } from "react";
import { api, ApiError } from "../api";

export function SignIn({ done }: { done: () => void }) {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<string>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await api.signIn(token);
      done();
    } catch (error) {
      setProblem(error instanceof ApiError ? `${error.message}. ${error.remedy ?? ""}` : String(error));
    }
  };
  return (
    <Center mih="100vh" p="md" component="main">
      <Card withBorder shadow="sm" p="xl" w={400}>
        <form onSubmit={submit}>
          <Stack gap="md">
            <Title order={1} size="h3">
              omnigraph
            </Title>
            <Text size="sm" c="dimmed">
              This server knows its users by bearer tokens. Yours is exchanged for a session of this browser and is
              not stored.
            </Text>
            <PasswordInput
              label="Token"
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
              error={problem}
              autoFocus
              required
              withAsterisk={false}
            />
            <Button type="submit" size="sm">
              Sign in
            </Button>
            <Text size="xs" c="dimmed">
              Started by <code>omnigraph ui</code>? Its link works once; run it again, or reload the page{" "}
              <Anchor href="/ui" size="xs">
                in the same browser
              </Anchor>
              .
            </Text>
          </Stack>
        </form>
      </Card>
    </Center>
  );
}
